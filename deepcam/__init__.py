"""DeepCAM: tropical cyclones and atmospheric rivers in climate simulations, as a segmentation."""

from common.extras import explain_missing

explain_missing(__name__)
