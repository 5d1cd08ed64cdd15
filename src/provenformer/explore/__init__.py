"""`provenformer explore`: a local web app to play with the construction. Needs the extra `explore`."""
