// SPDX-License-Identifier: Apache-2.0

// Package ngap is NGAP (TS 38.413 release 17) as a non-3GPP access or wireline node speaks it (TS 29.413): the
// elementary procedures that such a node takes part in, or refuses. Encode and Decode are for whole messages,
// EncodeTransfer and DecodeTransfer for the content of octet strings.
package ngap

//go:generate ../../.venv/bin/python generate/generate.py

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"sluice.dev/sluice/agent/per"
)

type procedure struct {
	criticality Criticality
	// Initiating message, successful outcome, unsuccessful outcome.
	messages [3]reflect.Type
}

// Outcome is the alternative of an NGAP-PDU.
type Outcome uint8

const (
	Initiating Outcome = iota
	Successful
	Unsuccessful
)

const (
	Reject = CriticalityReject
	Ignore = CriticalityIgnore
	Notify = CriticalityNotify
)

// PDU is an NGAP message.
type PDU struct {
	Outcome     Outcome
	Procedure   uint8
	Criticality Criticality
	// Value points to the message: *NGSetupRequest.
	Value any
	// Faults are IEs that the message should not have, or lacks (section 10.3).
	Faults []per.Fault
}

// Name of the message: NGSetupRequest.
func (p *PDU) Name() string {
	if p.Value == nil {
		return fmt.Sprintf("procedure %d", p.Procedure)
	}
	return reflect.TypeOf(p.Value).Elem().Name()
}

// ProcedureError is a message of a procedure that is not comprehended, or that has a transfer syntax error. The
// readable fields of its head are set, for an ERROR INDICATION.
type ProcedureError struct {
	Outcome     Outcome
	Procedure   uint8
	Criticality Criticality
	// Known: the procedure is one of ours.
	Known bool
	Err   error
}

func (e *ProcedureError) Error() string {
	return fmt.Sprintf("NGAP procedure %d: %v", e.Procedure, e.Err)
}
func (e *ProcedureError) Unwrap() error { return e.Err }

// ErrUnknownProcedure: no elementary procedure that this node takes part in has the code.
var ErrUnknownProcedure = errors.New("unknown elementary procedure")

// MaxMessage is the size of the largest message that is read.
const MaxMessage = 1 << 16

// Decode reads a message. Errors are transfer syntax errors; those of a message whose head could be read are of type *ProcedureError.
func Decode(octets []byte) (*PDU, error) {
	if len(octets) > MaxMessage {
		return nil, fmt.Errorf("NGAP: a message of %d octets, at most %d are read", len(octets), MaxMessage)
	}
	outcome, code, criticality, value, err := per.DecodePDU(octets)
	if err != nil {
		return nil, fmt.Errorf("NGAP: %w", err)
	}
	failure := &ProcedureError{Outcome: Outcome(outcome), Procedure: code, Criticality: Criticality(criticality), Err: ErrUnknownProcedure}
	known, ok := procedures[code]
	if !ok || known.messages[outcome] == nil {
		failure.Known = ok
		return nil, failure
	}
	failure.Known = true
	message := reflect.New(known.messages[outcome])
	faults, err := per.Decode(value, message.Interface())
	if err != nil {
		failure.Err = err
		return nil, failure
	}
	return &PDU{Outcome(outcome), code, Criticality(criticality), message.Interface(), faults}, nil
}

type messageType struct {
	code        uint8
	outcome     Outcome
	criticality Criticality
}

var messageTypes = func() map[reflect.Type]messageType {
	types := map[reflect.Type]messageType{}
	for code, p := range procedures {
		for outcome, message := range p.messages {
			if message != nil {
				types[message] = messageType{code, Outcome(outcome), p.criticality}
			}
		}
	}
	return types
}()

// Encode writes a message, such as *NGSetupRequest.
func Encode(message any) ([]byte, error) {
	of := reflect.TypeOf(message)
	if of == nil || of.Kind() != reflect.Pointer {
		return nil, fmt.Errorf("NGAP: %T is no message", message)
	}
	kind, ok := messageTypes[of.Elem()]
	if !ok {
		return nil, fmt.Errorf("NGAP: %T is no message", message)
	}
	value, err := per.Encode(message)
	if err != nil {
		return nil, fmt.Errorf("NGAP: %w", err)
	}
	return per.EncodePDU(uint8(kind.outcome), kind.code, per.Criticality(kind.criticality), value), nil
}

// DecodeTransfer reads the content of an octet string, such as a PDUSessionResourceSetupRequestTransfer.
func DecodeTransfer(octets []byte, into any) ([]per.Fault, error) {
	return per.Decode(octets, into)
}

// EncodeTransfer writes the content of an octet string.
func EncodeTransfer(value any) ([]byte, error) { return per.Encode(value) }

// label is the name of an enumeration's value.
func label(value int64, labels string) string {
	all := strings.Fields(labels)
	if value < 0 || value >= int64(len(all)) {
		return fmt.Sprint(value)
	}
	return all[value]
}

// NewTransfer returns a pointer to a new value of a type that octet strings contain, by its name; nil: there is none.
func NewTransfer(name string) any {
	for _, of := range contained {
		if of.Name() == name {
			return reflect.New(of).Interface()
		}
	}
	return nil
}
