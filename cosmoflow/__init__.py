"""CosmoFlow: cosmological parameters from the distribution of dark matter."""

from common.extras import explain_missing

explain_missing(__name__)
