// Functions of a part.
