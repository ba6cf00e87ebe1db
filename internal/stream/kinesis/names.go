package kinesis

import (
	"synctl/internal/record"
	"synctl/internal/stream"
)

// names holds the partition keys of a run of records, so that the lock is taken once for all of them.
type names struct {
	bytes []byte
	ends  []int
}

// maxNames bounds how many records are looked at before they can leave.
const maxNames = 512

// fill makes the partition keys of the records up to the first truncate, and says how many these are.
func (n *names) fill(records []record.Record, by stream.KeyBy) (int, error) {
	n.bytes, n.ends = n.bytes[:0], n.ends[:0]
	for i := range records {
		rec := &records[i]
		if rec.Op == record.Truncate || i == maxNames {
			return i, nil
		}
		var err error
		if n.bytes, err = by.AppendPartitionKey(n.bytes, rec); err != nil {
			return 0, err
		}
		n.ends = append(n.ends, len(n.bytes))
	}
	return len(records), nil
}

func (n *names) at(i int) []byte {
	from := 0
	if i > 0 {
		from = n.ends[i-1]
	}
	return n.bytes[from:n.ends[i]]
}
