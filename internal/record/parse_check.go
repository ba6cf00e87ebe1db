package record

import "fmt"

// check holds the fields against each other once all are read.
func (p *parser) check() error {
	r := p.r
	if p.seen&fieldOp == 0 {
		return p.missing(fieldOp)
	}
	if missing := requiredFields(r.Op, r.Line.Transactional) &^ p.seen; missing != 0 {
		return p.missing(missing)
	}
	if r.Op == Delete && p.seen&(fieldKey|fieldBefore) == 0 {
		return p.missing(fieldKey)
	}
	if r.Op == Read || r.Op == Data {
		return p.checkEncoding()
	}
	return p.checkPos()
}

func (p *parser) missing(f fieldSet) error {
	p.field = f.name()
	if p.r.Op == 0 {
		return p.fail("is missing, which every record has")
	}
	return p.fail("is missing, which every " + p.r.Op.String() + " record has")
}

// checkPos holds a change's id against the fields that say the same in other words: were they to differ, duplicates
// would be told by one and order by the other.
func (p *parser) checkPos() error {
	r := p.r
	p.field, p.i = "id", p.idAt
	if !p.hasPos {
		return p.fail("want system.timeline.row_lsn.n, the row LSN as 16 hexadecimal digits, for a " + r.Op.String())
	}
	if r.Pos.Row != p.rowLSN || r.Pos.N != p.n {
		return p.fail(fmt.Sprintf("does not go with row_lsn %s and n %d", p.rowLSN, p.n))
	}
	if !suffixFits(r.Op, r.Pos.Suffix) {
		return p.fail("its last character does not go with op " + r.Op.String())
	}
	if p.moved != r.Moved() {
		return p.fail(fmt.Sprintf("does not go with moved %t", p.moved))
	}
	return p.checkEncoding()
}

// suffixFits tells whether an id of a record of this operation ends like this.
func suffixFits(op Op, s Suffix) bool {
	switch s {
	case MovedOut:
		return op == Delete
	case MovedIn:
		return op == Insert
	case MessageEnd:
		return op == Message
	case TxBegin:
		return op == Begin
	case TxCommit:
		return op == Commit
	case NoSuffix:
		return op != Message && op != Begin && op != Commit
	}
	return false
}

// checkEncoding sees to it that what is said to be base64 is a string.
func (p *parser) checkEncoding() error {
	if l := &p.r.Line; l.Base64 && p.r.Op == Data && !decodable(l.Get(l.Data)) {
		p.field, p.i = fieldData.name(), int(l.Data.Off)
		return p.fail("want a string, as encoding is base64")
	}
	return nil
}

// parseID reads the id of a change as Pos.AppendID writes it; ok is false for any other text.
func parseID(s []byte) (pos Pos, ok bool) {
	sys, s, ok1 := cutUint(s, 1<<64-1)
	tl, s, ok2 := cutUint(s, 1<<32-1)
	if !ok1 || !ok2 || len(s) < 18 || s[16] != '.' {
		return Pos{}, false
	}
	var row uint64
	for _, c := range s[:16] {
		d, ok := hexDigit(c)
		if !ok || c >= 'a' {
			return Pos{}, false
		}
		row = row<<4 | uint64(d)
	}
	s = s[17:]
	suffix := NoSuffix
	switch c := Suffix(s[len(s)-1]); c {
	case MovedOut, MovedIn, MessageEnd, TxBegin, TxCommit:
		suffix, s = c, s[:len(s)-1]
	}
	n, ok := parseUint(s, 1<<32-1)
	if !ok {
		return Pos{}, false
	}
	return Pos{System: sys, Timeline: uint32(tl), Row: LSN(row), N: uint32(n), Suffix: suffix}, true
}

// cutUint reads a number and the dot after it.
func cutUint(s []byte, most uint64) (v uint64, rest []byte, ok bool) {
	i := skipDigits(s, 0)
	if i == len(s) || s[i] != '.' {
		return 0, nil, false
	}
	v, ok = parseUint(s[:i], most)
	return v, s[i+1:], ok
}

// parseUint reads a decimal number that is written in the one way: digits, no leading zero.
func parseUint(s []byte, most uint64) (v uint64, ok bool) {
	if len(s) == 0 || len(s) > 20 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	for i, c := range s {
		d := uint64(c - '0')
		if d > 9 || i == 19 && v > (1<<64-1-d)/10 { // 19 digits always fit
			return 0, false
		}
		v = v*10 + d
	}
	return v, v <= most
}

// parseLSN is ParseLSN for bytes.
func parseLSN(s []byte) (lsn LSN, ok bool) {
	var v uint64
	digits, slash := 0, false
	for _, c := range s {
		if c == '/' && !slash && digits > 0 {
			lsn, v, digits, slash = LSN(v<<32), 0, 0, true
			continue
		}
		d, ok := hexDigit(c)
		if !ok || digits == 8 {
			return 0, false
		}
		v = v<<4 | uint64(d)
		digits++
	}
	return lsn | LSN(v), slash && digits > 0
}
