package caption

func readTTML(string) ([]Cue, error) { return nil, invalid("TTML is not read yet") }
