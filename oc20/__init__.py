"""Open Catalyst 2020: energies and forces of adsorbates on catalyst surfaces."""

import common  # noqa: F401  (which says where Python is too old for the others)
