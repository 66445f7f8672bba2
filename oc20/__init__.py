"""Open Catalyst 2020: energies and forces of adsorbates on catalyst surfaces."""
