"""Open Catalyst 2020: energies and forces of adsorbates on catalyst surfaces."""

from common.extras import explain_missing

explain_missing(__name__)
