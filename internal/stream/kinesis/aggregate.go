package kinesis

import (
	"bytes"
	"crypto/md5"

	"google.golang.org/protobuf/encoding/protowire"
)

// The Kinesis Producer Library packs several user records into one stream record: four magic bytes, a protobuf message
// (1: partition keys, 2: explicit hash keys, 3: records, each 1: index of its key, 3: data), and the message's MD5.
var aggregateMagic = []byte{0xF3, 0x89, 0x9A, 0xC2}

type subRecord struct{ key, data []byte }

// deaggregate takes a KPL aggregate apart, appending to dst. ok is false for anything else, which is a record as it
// stands: data may begin with the magic bytes by chance, and only the checksum tells.
func deaggregate(dst []subRecord, data []byte) (subs []subRecord, ok bool) {
	body, found := bytes.CutPrefix(data, aggregateMagic)
	if !found || len(body) < md5.Size {
		return dst, false
	}
	body, sum := body[:len(body)-md5.Size], body[len(body)-md5.Size:]
	if got := md5.Sum(body); !bytes.Equal(got[:], sum) {
		return dst, false
	}
	from := len(dst)
	var keys [][]byte
	var index []uint64
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return dst[:from], false
		}
		body = body[n:]
		if typ == protowire.BytesType && (num == 1 || num == 3) {
			v, n := protowire.ConsumeBytes(body)
			if n < 0 {
				return dst[:from], false
			}
			body = body[n:]
			if num == 1 {
				keys = append(keys, v)
				continue
			}
			i, payload, ok := subRecordOf(v)
			if !ok {
				return dst[:from], false
			}
			index = append(index, i)
			dst = append(dst, subRecord{data: payload})
			continue
		}
		if n = protowire.ConsumeFieldValue(num, typ, body); n < 0 {
			return dst[:from], false
		}
		body = body[n:]
	}
	for i, k := range index {
		if k >= uint64(len(keys)) {
			return dst[:from], false
		}
		dst[from+i].key = keys[k]
	}
	return dst, true
}

func subRecordOf(p []byte) (key uint64, data []byte, ok bool) {
	for len(p) > 0 {
		num, typ, n := protowire.ConsumeTag(p)
		if n < 0 {
			return 0, nil, false
		}
		p = p[n:]
		switch {
		case num == 1 && typ == protowire.VarintType:
			key, n = protowire.ConsumeVarint(p)
		case num == 3 && typ == protowire.BytesType:
			data, n = protowire.ConsumeBytes(p)
		default:
			n = protowire.ConsumeFieldValue(num, typ, p)
		}
		if n < 0 {
			return 0, nil, false
		}
		p = p[n:]
	}
	return key, data, true
}
