package record

import "time"

// Types and records that several tests share.

var (
	tInt   = &Type{OID: 23, Name: "int4", Kind: KindNumber}
	tNum   = &Type{OID: 1700, Name: "numeric", Kind: KindNumber}
	tText  = &Type{OID: 25, Name: "text", Kind: KindString}
	tBool  = &Type{OID: 16, Name: "bool", Kind: KindBool}
	tDate  = &Type{OID: 1082, Name: "date", Kind: KindDate}
	tTS    = &Type{OID: 1114, Name: "timestamp", Kind: KindTimestamp}
	tTZ    = &Type{OID: 1184, Name: "timestamptz", Kind: KindTimestampTZ}
	tJSON  = &Type{OID: 114, Name: "json", Kind: KindJSON}
	tJSONB = &Type{OID: 3802, Name: "jsonb", Kind: KindJSONB}
	tHst   = &Type{Name: "hstore", Kind: KindHstore}
	tBox   = &Type{OID: 603, Name: "box", Kind: KindString}
	tOid   = &Type{OID: 26, Name: "oid", Kind: KindString}
	tInts  = array(tInt)
	tTexts = array(tText)
	tPair  = &Type{Name: "public.pair", Kind: KindComposite, Fields: []Field{{"n", tInt}, {"t", tText}}}
	tDeep  = &Type{Name: "public.deep", Kind: KindComposite, Fields: []Field{{"p", array(tPair)}, {"j", tJSONB}, {"h", tHst}}}
)

func array(elem *Type) *Type {
	t := &Type{Name: elem.Name + "[]", Kind: KindArray, Elem: elem, Delim: ','}
	if elem == tBox {
		t.Delim = ';'
	}
	return t
}

func text(s string) Value { return Value{Kind: Text, Data: []byte(s)} }

var null = Value{Kind: Null}

// orders has nine columns of the usual kinds and the key id.
func orders() *Table {
	return NewTable("public", "orders", 16384, []Column{
		{Name: "id", Type: tInt, Key: true}, {Name: "customer", Type: tInt}, {Name: "status", Type: tText},
		{Name: "amount", Type: tNum}, {Name: "paid", Type: tBool}, {Name: "created", Type: tTZ},
		{Name: "due", Type: tDate}, {Name: "note", Type: tText}, {Name: "extra", Type: tJSONB},
	})
}

func orderRow() []Value {
	return []Value{text("42"), text("1234567"), text("paid"), text("12.30"), text("t"),
		text("2026-11-30 19:58:00.123456+00"), text("2026-12-24"), text("Leave it at the door, \"please\"."), text(`{"a": [1, 2]}`)}
}

func pos(suffix Suffix) Pos {
	return Pos{System: 7412345678901234567, Timeline: 1, Commit: 0x16B3748, Row: 0x16B3700, Suffix: suffix}
}

var committed = MicrosOf(time.Date(2026, 11, 30, 19, 58, 0, 123456000, time.UTC))

func change(op Op, t *Table, before, after []Value) *Record {
	return &Record{Op: op, Pos: pos(NoSuffix), XID: 751, CommittedAt: committed, Table: t, Before: before, After: after}
}
