package convert

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"synctl/internal/record"
)

// AppendJSON writes the value at i as JSON, by the rules of to_json: numbers with every digit, NaN and infinities as strings,
// timestamps in ISO 8601, bytes as \x and hexadecimal digits.
func AppendJSON(dst []byte, a arrow.Array, i int) ([]byte, error) {
	if a.IsNull(i) {
		return append(dst, "null"...), nil
	}
	switch a := a.(type) {
	case *array.Dictionary:
		return AppendJSON(dst, a.Dictionary(), a.GetValueIndex(i))
	case *array.Map:
		return appendJSONMap(dst, a, i)
	case array.ListLike:
		start, end := a.ValueOffsets(i)
		dst = append(dst, '[')
		var err error
		for k := start; k < end && err == nil; k++ {
			if k > start {
				dst = append(dst, ',')
			}
			dst, err = appendJSONField(dst, elemOf(a), a.ListValues(), int(k))
		}
		return append(dst, ']'), err
	case *array.Struct:
		dt := a.DataType().(*arrow.StructType)
		dst = append(dst, '{')
		var err error
		for k := 0; k < a.NumField() && err == nil; k++ {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = append(record.AppendString(dst, dt.Field(k).Name), ':')
			dst, err = appendJSONField(dst, dt.Field(k), a.Field(k), i)
		}
		return append(dst, '}'), err
	}
	return appendJSONScalar(dst, a, i)
}

// appendJSONField writes a field of something nested. Strings that are JSON by their field's annotation, as BigQuery sends
// them, are embedded.
func appendJSONField(dst []byte, f arrow.Field, a arrow.Array, i int) ([]byte, error) {
	if name, ok := f.Metadata.GetValue("ARROW:extension:name"); ok && name == "google:sqlType:json" && isString(a.DataType()) && !a.IsNull(i) {
		return append(dst, bytesOf(a)(i)...), nil
	}
	return AppendJSON(dst, a, i)
}

func elemOf(a array.ListLike) arrow.Field {
	if dt, ok := a.DataType().(arrow.ListLikeType); ok {
		return dt.ElemField()
	}
	return arrow.Field{}
}

func appendJSONMap(dst []byte, a *array.Map, i int) ([]byte, error) {
	start, end := a.ValueOffsets(i)
	dst = append(dst, '{')
	for k := start; k < end; k++ {
		if k > start {
			dst = append(dst, ',')
		}
		key, _, err := appendScalarText(nil, a.Keys(), int(k))
		if err != nil {
			return dst, fmt.Errorf("map key: %w", err)
		}
		dst = append(record.AppendString(dst, key), ':')
		if dst, err = AppendJSON(dst, a.Items(), int(k)); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func appendJSONScalar(dst []byte, a arrow.Array, i int) ([]byte, error) {
	mark := len(dst)
	dst, bare, err := appendScalarText(dst, a, i)
	if err != nil || bare {
		return dst, err
	}
	text := string(dst[mark:])
	return record.AppendString(dst[:mark], text), nil
}

// appendScalarText writes a scalar's text in PostgreSQL's form; bare tells that it is a JSON literal as it stands.
func appendScalarText(dst []byte, a arrow.Array, i int) (_ []byte, bare bool, err error) {
	switch a := a.(type) {
	case *array.Boolean:
		return strconv.AppendBool(dst, a.Value(i)), true, nil
	case *array.Int8:
		return strconv.AppendInt(dst, int64(a.Value(i)), 10), true, nil
	case *array.Int16:
		return strconv.AppendInt(dst, int64(a.Value(i)), 10), true, nil
	case *array.Int32:
		return strconv.AppendInt(dst, int64(a.Value(i)), 10), true, nil
	case *array.Int64:
		return strconv.AppendInt(dst, a.Value(i), 10), true, nil
	case *array.Uint8:
		return strconv.AppendUint(dst, uint64(a.Value(i)), 10), true, nil
	case *array.Uint16:
		return strconv.AppendUint(dst, uint64(a.Value(i)), 10), true, nil
	case *array.Uint32:
		return strconv.AppendUint(dst, uint64(a.Value(i)), 10), true, nil
	case *array.Uint64:
		return strconv.AppendUint(dst, a.Value(i), 10), true, nil
	case *array.Float16:
		return appendFloatValue(dst, float64(a.Value(i).Float32()), 32)
	case *array.Float32:
		return appendFloatValue(dst, float64(a.Value(i)), 32)
	case *array.Float64:
		return appendFloatValue(dst, a.Value(i), 64)
	case *array.Decimal32, *array.Decimal64, *array.Decimal128, *array.Decimal256:
		var w [4]uint64
		if wordsOf(a)(i, &w) {
			dst = append(dst, '-')
		}
		return appendDecimal(dst, appendWide(nil, w[:]), int(a.DataType().(arrow.DecimalType).GetScale())), true, nil
	case array.ExtensionArray:
		return appendExtension(dst, a, i)
	}
	if dst, ok, err := appendMoment(dst, a, i); ok {
		return dst, false, err
	}
	return appendBytesValue(dst, a, i)
}

func appendExtension(dst []byte, a array.ExtensionArray, i int) ([]byte, bool, error) {
	switch a.DataType().(arrow.ExtensionType).ExtensionName() {
	case "arrow.uuid":
		b := a.Storage().(*array.FixedSizeBinary).Value(i)
		for k, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
			if k > 0 {
				dst = append(dst, '-')
			}
			dst = hex.AppendEncode(dst, part)
		}
		return dst, false, nil
	case "arrow.json":
		dst, _, err := appendScalarText(dst, a.Storage(), i)
		return dst, true, err
	}
	switch a.Storage().(type) {
	case array.ListLike, *array.Struct:
		dst, err := AppendJSON(dst, a.Storage(), i)
		return dst, true, err
	}
	return appendScalarText(dst, a.Storage(), i)
}

func appendBytesValue(dst []byte, a arrow.Array, i int) ([]byte, bool, error) {
	switch a := a.(type) {
	case *array.String, *array.LargeString, *array.StringView:
		b := bytesOf(a)(i)
		if _, err := (&env{nul: NULStrip}).cleanString(b); err != nil {
			return dst, false, err
		}
		return append(dst, b...), false, nil
	case *array.Binary, *array.LargeBinary, *array.BinaryView, *array.FixedSizeBinary:
		return hex.AppendEncode(append(dst, '\\', 'x'), bytesOf(a)(i)), false, nil
	case *array.MonthDayNanoInterval:
		v := a.Value(i)
		dst = fmt.Appendf(dst, "%d mons %d days %d.%09d secs", v.Months, v.Days, v.Nanoseconds/1e9, abs(v.Nanoseconds%1e9))
		return dst, false, nil
	}
	return dst, false, fmt.Errorf("values of %s have no text form here", a.DataType())
}

func abs(v int64) int64 {
	if v < 0 {
		return -v
	}
	return v
}

func appendFloatValue(dst []byte, v float64, size int) ([]byte, bool, error) {
	switch {
	case math.IsNaN(v):
		return append(dst, "NaN"...), false, nil
	case math.IsInf(v, 1):
		return append(dst, "Infinity"...), false, nil
	case math.IsInf(v, -1):
		return append(dst, "-Infinity"...), false, nil
	}
	return strconv.AppendFloat(dst, v, 'g', -1, size), true, nil
}

// appendMoment writes dates, times and timestamps; ok is false for other types.
func appendMoment(dst []byte, a arrow.Array, i int) (_ []byte, ok bool, err error) {
	switch a := a.(type) {
	case *array.Date32:
		return appendISODate(dst, int64(a.Value(i))), true, nil
	case *array.Date64:
		ms := int64(a.Value(i))
		if ms%86_400_000 != 0 {
			return dst, true, fmt.Errorf("date %d ms has a time of day", ms)
		}
		return appendISODate(dst, ms/86_400_000), true, nil
	case *array.Time32:
		dst, err = appendISOTime(dst, int64(a.Value(i)), a.DataType().(*arrow.Time32Type).Unit)
		return dst, true, err
	case *array.Time64:
		dst, err = appendISOTime(dst, int64(a.Value(i)), a.DataType().(*arrow.Time64Type).Unit)
		return dst, true, err
	case *array.Timestamp:
		dt := a.DataType().(*arrow.TimestampType)
		perDay := int64(86_400) * perSecond(dt.Unit)
		v := int64(a.Value(i))
		day, rest := v/perDay, v%perDay
		if rest < 0 {
			day, rest = day-1, rest+perDay
		}
		y, _, _ := civil(day)
		dst = appendCivil(dst, day)
		if dst, err = appendISOTime(append(dst, 'T'), rest, dt.Unit); err != nil {
			return dst, true, err
		}
		if dt.TimeZone != "" {
			dst = append(dst, "+00:00"...)
		}
		return appendEra(dst, y), true, nil
	}
	return dst, false, nil
}

func perSecond(u arrow.TimeUnit) int64 {
	switch u {
	case arrow.Second:
		return 1
	case arrow.Millisecond:
		return 1000
	case arrow.Microsecond:
		return 1_000_000
	}
	return 1_000_000_000
}

func appendISODate(dst []byte, days int64) []byte {
	y, _, _ := civil(days)
	return appendEra(appendCivil(dst, days), y)
}

func appendCivil(dst []byte, days int64) []byte {
	y, m, d := civil(days)
	if y <= 0 {
		y = 1 - y
	}
	dst = appendUint(dst, uint64(y), 4)
	dst = appendUint(append(dst, '-'), uint64(m), 2)
	return appendUint(append(dst, '-'), uint64(d), 2)
}

func appendEra(dst []byte, y int64) []byte {
	if y <= 0 {
		return append(dst, " BC"...)
	}
	return dst
}

// appendISOTime writes a time of day without trailing zeros in its fraction, as PostgreSQL does.
func appendISOTime(dst []byte, v int64, u arrow.TimeUnit) ([]byte, error) {
	per := perSecond(u)
	s, frac := v/per, v%per
	if v < 0 || s > 86_400 {
		return dst, fmt.Errorf("time %d %s from midnight is out of range", v, u)
	}
	dst = appendUint(dst, uint64(s/3600), 2)
	dst = appendUint(append(dst, ':'), uint64(s/60%60), 2)
	dst = appendUint(append(dst, ':'), uint64(s%60), 2)
	if frac == 0 {
		return dst, nil
	}
	width := len(strconv.FormatInt(per, 10)) - 1
	dst = appendUint(append(dst, '.'), uint64(frac), width)
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	return dst, nil
}
