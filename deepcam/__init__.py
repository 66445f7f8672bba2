"""DeepCAM: tropical cyclones and atmospheric rivers in climate simulations, as a segmentation."""
