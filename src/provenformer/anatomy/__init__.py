"""What a circuit is made of: which head and which units compute which value of the formula; as text and as a drawing."""
