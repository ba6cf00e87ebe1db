// Package fault holds the errors that a person reads: what went wrong, of which class (the exit code), and what to
// do next (promise 11). It is the bottom room: every package may import it, it imports none of ours.
//
// An error is made where the cause is known and printed once, in cmd. Packages between wrap it with
// fmt.Errorf("verb noun: %w", err); class and hint survive the wrapping.
package fault

import (
	"errors"
	"fmt"
)

// Class says what kind of failure ended a run. Its number is the exit code.
type Class int

const (
	Failed      Class = 1 // the run failed: a malformed line, a record too large, a disk that is full
	Usage       Class = 2 // the command line or the configuration is wrong
	Unreachable Class = 3 // a server could not be reached, or refused us
	Check       Class = 4 // a check failed: wal_level, publication, keyless table, lost slot, gap, verification
	DeadLetters Class = 5 // finished, but records went to the dead-letter file
)

// Error is a failure with its class and the next step.
type Error struct {
	Class Class
	Hint  string // the next step, a sentence or several; empty when there is none to give
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// New makes an error of class with a hint. The message follows fmt.Errorf, %w included.
func New(class Class, hint, format string, args ...any) error {
	return &Error{Class: class, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// Wrap gives err a class and a hint; nil stays nil.
func Wrap(class Class, hint string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Class: class, Hint: hint, Err: err}
}

// ClassOf is the class of the outermost fault in err's chain, Failed where there is none.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return Failed
}

// HintOf is the outermost hint that is not empty in err's chain.
func HintOf(err error) string {
	for err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}
