"""Examples of site profiles: copy the one that is closest to your machine. Each says where its values come from."""
