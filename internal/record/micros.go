package record

import (
	"fmt"
	"time"
)

const microsPerSecond = 1_000_000

// The years that an RFC 3339 time can hold.
const (
	minMicros = Micros(-62167219200 * microsPerSecond) // 0000-01-01T00:00:00Z
	endMicros = Micros(253402300800 * microsPerSecond) // 10000-01-01T00:00:00Z
)

// Time is m as a time in UTC.
func (m Micros) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// MicrosOf is t, cut to microseconds.
func MicrosOf(t time.Time) Micros { return Micros(t.UnixMicro()) }

// Append writes m as RFC 3339 in UTC with six decimals: 2026-11-30T19:58:00.123456Z. The year must have four digits.
func (m Micros) Append(dst []byte) []byte {
	sec, frac := int64(m)/microsPerSecond, int64(m)%microsPerSecond
	if frac < 0 {
		sec, frac = sec-1, frac+microsPerSecond
	}
	day, clock := sec/86400, sec%86400
	if clock < 0 {
		day, clock = day-1, clock+86400
	}
	year, month, dom := civil(day)
	dst = append2(append2(dst, year/100), year%100)
	dst = append2(append(dst, '-'), month)
	dst = append2(append(dst, '-'), dom)
	dst = append2(append(dst, 'T'), int(clock/3600))
	dst = append2(append(dst, ':'), int(clock/60%60))
	dst = append2(append(dst, ':'), int(clock%60))
	f := int(frac)
	dst = append2(append2(append2(append(dst, '.'), f/10000), f/100%100), f%100)
	return append(dst, 'Z')
}

func append2(dst []byte, v int) []byte { return append(dst, '0'+byte(v/10), '0'+byte(v%10)) }

// daysBefore is the number of days from 0000-03-01 to the first of March of year y; years that begin in March have
// their leap day at the end, so a date's day number needs no table.
func daysBefore(y int64) int64 { return 365*y + y/4 - y/100 + y/400 }

const daysTo1970 = 719468 // from 0000-03-01 to 1970-01-01

// civil is the date of a day counted from 1970-01-01, in the years 0000 to 9999.
func civil(day int64) (year, month, dom int) {
	d := day + daysTo1970 + daysBefore(400) // 400 years on, so that January and February of year 0 are not negative
	y := d * 400 / 146097
	for daysBefore(y) > d {
		y--
	}
	for daysBefore(y+1) <= d {
		y++
	}
	doy := d - daysBefore(y)
	m := (5*doy + 2) / 153 // months from March: 31, 30, 31, 30, 31 days, again and again
	dom = int(doy-(153*m+2)/5) + 1
	month = int(m) + 3
	if month > 12 {
		month, y = month-12, y+1
	}
	return int(y - 400), month, dom
}

// ParseMicros reads what Append writes; the decimals may be fewer or none.
func ParseMicros(s []byte) (Micros, error) {
	bad := func() (Micros, error) {
		return 0, fmt.Errorf("time %s: want UTC as in 2026-11-30T19:58:00.123456Z", excerpt(s))
	}
	if len(s) < 20 || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' || s[len(s)-1] != 'Z' {
		return bad()
	}
	y1, ok1 := digits2(s, 0)
	y2, ok2 := digits2(s, 2)
	mon, ok3 := digits2(s, 5)
	dom, ok4 := digits2(s, 8)
	h, ok5 := digits2(s, 11)
	mi, ok6 := digits2(s, 14)
	sec, ok7 := digits2(s, 17)
	year := y1*100 + y2
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7) || mon < 1 || mon > 12 || dom < 1 || dom > daysIn(year, mon) ||
		h > 23 || mi > 59 || sec > 59 {
		return bad()
	}
	frac := int64(0)
	if len(s) > 20 {
		dec := s[20 : len(s)-1]
		if s[19] != '.' || len(dec) < 1 || len(dec) > 6 || skipDigits(dec, 0) != len(dec) {
			return bad()
		}
		for i := range 6 {
			frac *= 10
			if i < len(dec) {
				frac += int64(dec[i] - '0')
			}
		}
	}
	y, m := year+400, mon-3
	if m < 0 {
		y, m = y-1, m+12
	}
	day := daysBefore(int64(y)) + int64((153*m+2)/5+dom-1) - daysTo1970 - daysBefore(400)
	return Micros((day*86400+int64(h*3600+mi*60+sec))*microsPerSecond + frac), nil
}

func digits2(s []byte, i int) (v int, ok bool) {
	a, b := s[i]-'0', s[i+1]-'0'
	return int(a)*10 + int(b), a <= 9 && b <= 9
}

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}
