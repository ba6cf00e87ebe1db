package convert

import (
	"encoding/binary"
	"fmt"
)

// PostgreSQL counts days and microseconds from 2000-01-01; these are its bounds.
const (
	epochDays   = 10957 // from 1970-01-01
	epochMicros = int64(epochDays) * microsPerDay

	microsPerDay    = int64(86_400_000_000)
	microsPerSecond = int64(1_000_000)

	minDate      = -2451545
	endDate      = 2145031949
	minTimestamp = int64(-211813488000000000)
	endTimestamp = int64(9223371331200000000)

	dateInfinity      = int32(1<<31 - 1)
	dateMinusInfinity = int32(-1 << 31)
	timeInfinity      = int64(1<<63 - 1)
	timeMinusInfinity = int64(-1 << 63)
)

// appendDate writes days from 1970-01-01 as a date.
func appendDate(dst []byte, days int64) ([]byte, error) {
	d := days - epochDays
	if d < minDate || d >= endDate {
		return dst, fmt.Errorf("date %d days from 1970-01-01 is out of PostgreSQL's range", days)
	}
	return binary.BigEndian.AppendUint32(dst, uint32(int32(d))), nil
}

// unitOf is a clock's unit: so many of it are one microsecond (per > 0), or one of it is so many microseconds.
type unitOf struct {
	nanos  bool  // 1000 units are a microsecond
	factor int64 // otherwise microseconds per unit
}

// micros converts a count of units to microseconds, exactly or not at all.
func (u unitOf) micros(v int64, what string) (int64, error) {
	if u.nanos {
		q := v / 1000
		if q*1000 != v {
			return 0, fmt.Errorf("%s %d ns has digits below the microsecond: PostgreSQL's %s cannot hold them", what, v, what)
		}
		return q, nil
	}
	m := v * u.factor
	if m/u.factor != v {
		return 0, fmt.Errorf("%s %d × %d µs from 1970-01-01 is out of PostgreSQL's range", what, v, u.factor)
	}
	return m, nil
}

// appendTimestamp writes microseconds from 1970-01-01 as a timestamp of t's precision.
func appendTimestamp(dst []byte, micros int64, t *Type) ([]byte, error) {
	v := micros - epochMicros
	if (micros < 0 && v > 0) || v < minTimestamp || v >= endTimestamp {
		return dst, fmt.Errorf("timestamp %d µs from 1970-01-01 is out of PostgreSQL's range", micros)
	}
	if err := checkFraction(v, t); err != nil {
		return dst, err
	}
	return binary.BigEndian.AppendUint64(dst, uint64(v)), nil
}

// appendTime writes microseconds from midnight; 24:00:00 is a time, too.
func appendTime(dst []byte, micros int64, t *Type) ([]byte, error) {
	if micros < 0 || micros > microsPerDay {
		return dst, fmt.Errorf("time %d µs from midnight is out of range", micros)
	}
	if err := checkFraction(micros, t); err != nil {
		return dst, err
	}
	return binary.BigEndian.AppendUint64(dst, uint64(micros)), nil
}

// checkFraction refuses what a precision below 6 would make the server round.
func checkFraction(micros int64, t *Type) error {
	if t.FracDigits >= 6 {
		return nil
	}
	unit := int64(1)
	for range 6 - t.FracDigits {
		unit *= 10
	}
	if micros%unit != 0 {
		return fmt.Errorf("value has more than %d digits after the second's point: it does not fit %s", t.FracDigits, t.Name)
	}
	return nil
}

// clock is a moment's text taken apart.
type clock struct {
	days     int64 // from 1970-01-01
	micros   int64 // of the day
	hasDate  bool
	hasTime  bool
	hasZone  bool
	offset   int64 // seconds east of UTC
	infinite int   // -1, 0, 1
}

// parseClock reads ISO 8601 as PostgreSQL writes it: [date][blank or T][time][zone][ BC], infinity. ok is false for
// anything else, also for what PostgreSQL would guess at; fine is false when there are digits below the microsecond.
func parseClock(b []byte) (c clock, ok, fine bool) {
	b = trimSpace(b)
	switch {
	case equalFold(b, "infinity"):
		c.infinite = 1
		return c, true, true
	case equalFold(b, "-infinity"):
		c.infinite = -1
		return c, true, true
	}
	bc := false
	if n := len(b); n > 3 && b[n-3] == ' ' && equalFold(b[n-2:], "bc") {
		bc, b = true, b[:n-3]
	}
	p := parser{b: b}
	fine = true
	if i := digitsEnd(b, 0); i >= 4 && i <= 7 && i < len(b) && b[i] == '-' {
		if !p.date(&c, bc) {
			return c, false, true
		}
		if p.end() {
			return c, true, true
		}
		if !p.take(' ') && !p.take('T') && !p.take('t') {
			return c, false, true
		}
	} else if bc {
		return c, false, true
	}
	if fine, ok = p.time(&c); !ok {
		return c, false, fine
	}
	return c, p.zone(&c) && p.end(), fine
}

type parser struct {
	b []byte
	i int
}

func (p *parser) end() bool { return p.i == len(p.b) }

func (p *parser) take(c byte) bool {
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

// number reads between least and most digits.
func (p *parser) number(least, most int) (int64, bool) {
	v, n := int64(0), 0
	for p.i < len(p.b) && n < most && p.b[p.i] >= '0' && p.b[p.i] <= '9' {
		v = v*10 + int64(p.b[p.i]-'0')
		p.i++
		n++
	}
	return v, n >= least
}

func (p *parser) date(c *clock, bc bool) bool {
	y, ok := p.number(4, 7)
	if !ok || !p.take('-') {
		return false
	}
	m, ok := p.number(1, 2)
	if !ok || !p.take('-') {
		return false
	}
	d, ok := p.number(1, 2)
	if !ok || y == 0 || m < 1 || m > 12 || d < 1 {
		return false
	}
	if bc {
		y = 1 - y
	}
	if d > daysIn(y, m) {
		return false
	}
	c.hasDate, c.days = true, daysFromCivil(y, m, d)
	return true
}

func (p *parser) time(c *clock) (fine, ok bool) {
	h, ok := p.number(2, 2)
	if !ok || !p.take(':') {
		return true, false
	}
	m, ok := p.number(2, 2)
	if !ok {
		return true, false
	}
	s, frac, fine := int64(0), int64(0), true
	if p.take(':') {
		if s, ok = p.number(2, 2); !ok {
			return true, false
		}
		if p.take('.') {
			if frac, fine, ok = p.fraction(); !ok {
				return true, false
			}
		}
	}
	if h > 24 || m > 59 || s > 60 || (h == 24 && m+s+frac > 0) || (s == 60 && frac > 0) {
		return fine, false
	}
	c.hasTime = true
	c.micros = (h*3600+m*60+s)*microsPerSecond + frac
	return fine, true
}

// fraction reads digits after the second's point as microseconds.
func (p *parser) fraction() (v int64, fine, ok bool) {
	start, fine := p.i, true
	for p.i < len(p.b) && p.b[p.i] >= '0' && p.b[p.i] <= '9' {
		if p.i-start < 6 {
			v = v*10 + int64(p.b[p.i]-'0')
		} else if p.b[p.i] != '0' {
			fine = false
		}
		p.i++
	}
	for n := p.i - start; n < 6; n++ {
		v *= 10
	}
	return v, fine, p.i > start
}

func (p *parser) zone(c *clock) bool {
	if p.end() {
		return true
	}
	if p.i+1 < len(p.b) && p.b[p.i] == ' ' {
		p.i++
	}
	if p.take('Z') || p.take('z') {
		c.hasZone = true
		return true
	}
	if rest := p.b[p.i:]; equalFold(rest, "utc") || equalFold(rest, "gmt") {
		c.hasZone, p.i = true, len(p.b)
		return true
	}
	sign := int64(1)
	if p.take('-') {
		sign = -1
	} else if !p.take('+') {
		return false
	}
	h, ok := p.number(2, 2)
	if !ok {
		return false
	}
	m, s := int64(0), int64(0)
	if colon := p.take(':'); colon || !p.end() {
		if m, ok = p.number(2, 2); !ok {
			return false
		}
		if p.take(':') {
			if s, ok = p.number(2, 2); !ok {
				return false
			}
		}
	}
	c.hasZone, c.offset = true, sign*(h*3600+m*60+s)
	return h <= 15 && m <= 59 && s <= 59
}

func leap(y int64) bool { return y%4 == 0 && (y%100 != 0 || y%400 == 0) }

func daysIn(y, m int64) int64 {
	if m == 2 && leap(y) {
		return 29
	}
	return [...]int64{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[m-1]
}

// daysFromCivil counts days from 1970-01-01 in the proleptic Gregorian calendar; year 0 is 1 BC.
func daysFromCivil(y, m, d int64) int64 {
	if m <= 2 {
		y--
		m += 12
	}
	era := y / 400
	if y < 0 && y%400 != 0 {
		era--
	}
	yoe := y - era*400
	doy := (153*(m-3)+2)/5 + d - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468
}

// civil is the inverse of daysFromCivil.
func civil(days int64) (y, m, d int64) {
	z := days + 719468
	era := z / 146097
	if z < 0 && z%146097 != 0 {
		era--
	}
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	y = yoe + era*400
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	d = doy - (153*mp+2)/5 + 1
	m = mp + 3
	if m > 12 {
		m -= 12
	}
	if m <= 2 {
		y++
	}
	return y, m, d
}

// appendDateTextBinary, appendTimeTextBinary and appendTimestampTextBinary write a moment's text in its binary form.
func appendDateText(dst, b []byte, t *Type) ([]byte, error) {
	c, ok, _ := parseClock(b)
	switch {
	case ok && c.infinite > 0:
		return binary.BigEndian.AppendUint32(dst, uint32(dateInfinity)), nil
	case ok && c.infinite < 0:
		v := dateMinusInfinity
		return binary.BigEndian.AppendUint32(dst, uint32(v)), nil
	case !ok || !c.hasDate:
		return dst, notISO(b, t)
	case c.hasTime && (c.micros != 0 || c.offset != 0):
		return dst, fmt.Errorf("value %s has a time of day: it does not fit date", quoteValue(b))
	}
	return appendDate(dst, c.days)
}

func appendTimeText(dst, b []byte, t *Type) ([]byte, error) {
	c, ok, fine := parseClock(b)
	switch {
	case !ok || c.infinite != 0 || c.hasDate || !c.hasTime:
		return dst, notISO(b, t)
	case !fine:
		return dst, tooFine(b, t)
	case c.hasZone:
		return dst, fmt.Errorf("value %s has a time zone: it does not fit %s", quoteValue(b), t.Name)
	}
	return appendTime(dst, c.micros, t)
}

func appendTimestampText(dst, b []byte, t *Type) ([]byte, error) {
	c, ok, fine := parseClock(b)
	switch {
	case ok && c.infinite > 0:
		return binary.BigEndian.AppendUint64(dst, uint64(timeInfinity)), nil
	case ok && c.infinite < 0:
		v := timeMinusInfinity
		return binary.BigEndian.AppendUint64(dst, uint64(v)), nil
	case !ok || !c.hasDate:
		return dst, notISO(b, t)
	case !fine:
		return dst, tooFine(b, t)
	case c.hasZone && t.Kind == Timestamp:
		return dst, fmt.Errorf("value %s has a time zone: it does not fit %s", quoteValue(b), t.Name)
	case c.days > endDate || c.days < -3_000_000:
		return dst, fmt.Errorf("value %s is out of PostgreSQL's range", quoteValue(b))
	}
	// In days and a remainder, so that the years next to the bound do not overflow before they are checked.
	micros := c.micros - c.offset*microsPerSecond
	days := c.days - epochDays
	if days > endTimestamp/microsPerDay || days < minTimestamp/microsPerDay-1 {
		return dst, fmt.Errorf("value %s is out of PostgreSQL's range", quoteValue(b))
	}
	v := days*microsPerDay + micros
	if v < minTimestamp || v >= endTimestamp {
		return dst, fmt.Errorf("value %s is out of PostgreSQL's range", quoteValue(b))
	}
	if err := checkFraction(v, t); err != nil {
		return dst, err
	}
	return binary.BigEndian.AppendUint64(dst, uint64(v)), nil
}

func notISO(b []byte, t *Type) error {
	return fmt.Errorf("value %s is not a %s in ISO 8601 (such as 2026-11-30 19:58:00.5+00); for other forms use --copy-format text, then the server reads them", quoteValue(b), t.Name)
}

func tooFine(b []byte, t *Type) error {
	return fmt.Errorf("value %s has digits below the microsecond: it does not fit %s", quoteValue(b), t.Name)
}
