"""Make, summarise and report submission packages; compliance judges them."""
