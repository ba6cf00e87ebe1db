package kinesisfake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// scanner reads the JSON of PutRecords without building anything but the entries: spans of the body.
type scanner struct {
	p []byte
	i int
}

var errJSON = errors.New("malformed JSON")

func (s *scanner) space() {
	for s.i < len(s.p) {
		switch s.p[s.i] {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return
		}
	}
}

func (s *scanner) peek() byte {
	s.space()
	if s.i >= len(s.p) {
		return 0
	}
	return s.p[s.i]
}

func (s *scanner) eat(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.i++
	return true
}

// text reads a string; without escapes it is a part of the body.
func (s *scanner) text() ([]byte, error) {
	if !s.eat('"') {
		return nil, errJSON
	}
	start, plain := s.i, true
	if end := bytes.IndexByte(s.p[start:], '"'); end >= 0 && bytes.IndexByte(s.p[start:start+end], '\\') < 0 {
		s.i += end + 1
		return s.p[start : start+end], nil // by far the most, and the long ones
	}
	for s.i < len(s.p) {
		switch s.p[s.i] {
		case '\\':
			plain = false
			s.i++
		case '"':
			raw := s.p[start:s.i]
			s.i++
			if plain {
				return raw, nil
			}
			var t string
			if err := json.Unmarshal(s.p[start-1:s.i], &t); err != nil {
				return nil, fmt.Errorf("read string: %w", err)
			}
			return []byte(t), nil
		}
		s.i++
	}
	return nil, errJSON
}

// skip passes over any value.
func (s *scanner) skip() error {
	switch s.peek() {
	case '"':
		_, err := s.text()
		return err
	case '{', '[':
		depth := 0
		for s.i < len(s.p) {
			switch s.p[s.i] {
			case '"':
				if _, err := s.text(); err != nil {
					return err
				}
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			s.i++
			if depth == 0 {
				return nil
			}
		}
		return errJSON
	}
	start := s.i
	for s.i < len(s.p) && s.p[s.i] != ',' && s.p[s.i] != '}' && s.p[s.i] != ']' {
		s.i++
	}
	if s.i == start {
		return errJSON
	}
	return nil
}

// object calls member for each name; member reads the value.
func (s *scanner) object(member func(name []byte) error) error {
	if !s.eat('{') {
		return errJSON
	}
	if s.eat('}') {
		return nil
	}
	for {
		name, err := s.text()
		if err != nil {
			return err
		}
		if !s.eat(':') {
			return errJSON
		}
		if err := member(name); err != nil {
			return err
		}
		if s.eat('}') {
			return nil
		}
		if !s.eat(',') {
			return errJSON
		}
	}
}

func (s *scanner) array(element func() error) error {
	if !s.eat('[') {
		return errJSON
	}
	if s.eat(']') {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.eat(']') {
			return nil
		}
		if !s.eat(',') {
			return errJSON
		}
	}
}
