"""Reading and writing: files into blocks of documents, releases into files."""
