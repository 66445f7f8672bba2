"""Records of a training, each a callback: files, TensorBoard, Weights & Biases, MLflow."""
