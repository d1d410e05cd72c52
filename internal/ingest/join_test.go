package ingest

// join returns strings, numbers and bytes as bytes.
func join(parts ...any) (all []byte) {
	for _, part := range parts {
		switch p := part.(type) {
		case string:
			all = append(all, p...)
		case int:
			all = append(all, byte(p))
		case []byte:
			all = append(all, p...)
		}
	}
	return all
}
