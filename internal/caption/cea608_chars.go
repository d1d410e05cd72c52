package caption

// The characters of CEA-608 (CTA-608-E, tables 5 to 10). What is nearly ASCII is in every pair of
// characters; the others are control codes of their own.

// cea608Block is shown for a character that arrives damaged.
const cea608Block = 0x7f

// cea608Standard returns the character of a byte, 0 if there is none.
func cea608Standard(b byte) rune {
	switch b {
	case 0x2a:
		return 'á'
	case 0x5c:
		return 'é'
	case 0x5e:
		return 'í'
	case 0x5f:
		return 'ó'
	case 0x60:
		return 'ú'
	case 0x7b:
		return 'ç'
	case 0x7c:
		return '÷'
	case 0x7d:
		return 'Ñ'
	case 0x7e:
		return 'ñ'
	case cea608Block:
		return '█'
	}
	if b < ' ' {
		return 0
	}
	return rune(b)
}

// cea608Special are the characters 0x1130 to 0x113f. 0 is the transparent space, which erases.
var cea608Special = [16]rune{
	'®', '°', '½', '¿', '™', '¢', '£', '♪', 'à', 0, 'è', 'â', 'ê', 'î', 'ô', 'û',
}

// cea608Extended are the characters 0x1220 to 0x123f and 0x1320 to 0x133f.
var cea608Extended = [2][32]rune{
	{
		'Á', 'É', 'Ó', 'Ú', 'Ü', 'ü', '‘', '¡', '*', '’', '—', '©', '℠', '•', '“', '”',
		'À', 'Â', 'Ç', 'È', 'Ê', 'Ë', 'ë', 'Î', 'Ï', 'ï', 'Ô', 'Ù', 'ù', 'Û', '«', '»',
	},
	{
		'Ã', 'ã', 'Í', 'Ì', 'ì', 'Ò', 'ò', 'Õ', 'õ', '{', '}', '\\', '^', '_', '|', '~',
		'Ä', 'ä', 'Ö', 'ö', 'ß', '¥', '¤', '│', 'Å', 'å', 'Ø', 'ø', '┌', '┐', '└', '┘',
	},
}
