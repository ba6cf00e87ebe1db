package record

import (
	"bytes"
	"fmt"
)

// appendJSONColumn embeds a json or jsonb value. literal: where json_populate_record would not give the value back.
func appendJSONColumn(dst, text []byte, kind TypeKind) (out []byte, literal bool, err error) {
	mark := len(dst)
	dst, fl, err := appendDocument(dst, text)
	if err != nil {
		return dst, false, err
	}
	first := dst[skipSpace(dst, mark)] // a document is never empty
	switch {
	case first == 'n':
		literal = true // null looks like SQL NULL
	case fl&(hasNUL|hasLone) != 0:
		literal = true // PostgreSQL stores such escapes in json and refuses to decode them
	case kind == KindJSON && first == '"' && fl&hasEscape != 0:
		literal = true // a string that is the whole value is decoded and escaped anew, perhaps in another way
	}
	return dst, literal, nil
}

// appendDocument embeds a JSON text, without its line breaks.
func appendDocument(dst, text []byte) (out []byte, fl strFlags, err error) {
	off, fl, bad := scanDocument(text)
	if bad != "" {
		return dst, fl, fmt.Errorf("not JSON at byte %d, %s: %s", off, bad, excerpt(text))
	}
	return appendWithoutBreaks(dst, text), fl, nil
}

// appendWithoutBreaks copies JSON but for its line breaks: valid JSON has them between tokens only.
func appendWithoutBreaks(dst, text []byte) []byte {
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return append(dst, text...)
	}
	for _, c := range text {
		if c != '\n' && c != '\r' {
			dst = append(dst, c)
		}
	}
	return dst
}
