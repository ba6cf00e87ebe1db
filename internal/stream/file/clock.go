package file

import (
	"time"

	"synctl/internal/record"
)

// clock stamps the records of one batch. Within a shard it never goes back, also when the system's does.
type clock struct {
	now  int64 // µs since 1970, of the batch
	at   int64 // what text says
	text []byte
}

func (c *clock) set(t time.Time) { c.now = t.UnixMicro() }

// after is now, or last if that is later, with its text, which is valid until the next call.
func (c *clock) after(last int64) (int64, []byte) {
	at := max(c.now, last)
	if at != c.at || c.text == nil {
		c.at, c.text = at, record.Micros(at).Append(c.text[:0])
	}
	return at, c.text
}
