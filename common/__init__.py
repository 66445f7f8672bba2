"""What every benchmark shares; knows no benchmark."""
