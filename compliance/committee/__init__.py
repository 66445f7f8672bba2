"""The committee's own rule files, read as data: nothing in them is executed but what this package allows."""
