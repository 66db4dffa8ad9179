"""What `exactk demo` tells: requests solved beside what people do today, then a model trained on a small world."""
