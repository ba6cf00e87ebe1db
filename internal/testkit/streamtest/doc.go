// Package streamtest is the conformance suite of streams: what publish and replay rely on, whatever the stream is made
// of. Every kind runs it by one call of Run (promises 1, 2, 3).
package streamtest
