"""The rules. Importing `of_logs` registers those about one log, importing `of_results` all others as well."""
