// SPDX-License-Identifier: Apache-2.0

// Command codec decodes and encodes messages for tests: each line of its input is a format and octets in hexadecimal, each line of its
// output the same message encoded again, or a word for why not.
package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
)

func ngapAgain(octets []byte) string {
	pdu, err := ngap.Decode(octets)
	var failure *ngap.ProcedureError
	switch {
	case errors.As(err, &failure) && !failure.Known:
		return fmt.Sprintf("unknown %d", failure.Procedure)
	case err != nil:
		return "error " + err.Error()
	case len(pdu.Faults) > 0:
		return fmt.Sprintf("faults %v", pdu.Faults)
	}
	again, err := ngap.Encode(pdu.Value)
	if err != nil {
		return "error " + err.Error()
	}
	return hex.EncodeToString(again)
}

func nasAgain(octets []byte) string {
	message, err := nas.Decode(octets)
	if err != nil {
		return "error " + err.Error()
	}
	again, err := nas.Encode(message)
	if err != nil {
		return "error " + err.Error()
	}
	return hex.EncodeToString(again)
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for in.Scan() {
		format, text, _ := strings.Cut(in.Text(), " ")
		octets, err := hex.DecodeString(text)
		switch {
		case err != nil:
			fmt.Fprintln(out, "error "+err.Error())
		case format == "ngap":
			fmt.Fprintln(out, ngapAgain(octets))
		case format == "nas":
			fmt.Fprintln(out, nasAgain(octets))
		default:
			name, isTransfer := strings.CutPrefix(format, "transfer:")
			if !isTransfer {
				fmt.Fprintln(out, "error: format "+format)
				continue
			}
			fmt.Fprintln(out, transferAgain(name, octets))
		}
		out.Flush()
	}
}

func transferAgain(name string, octets []byte) string {
	value := ngap.NewTransfer(name)
	if value == nil {
		return "unknown " + name
	}
	faults, err := ngap.DecodeTransfer(octets, value)
	if err != nil {
		return "error " + err.Error()
	}
	if len(faults) > 0 {
		return fmt.Sprintf("faults %v", faults)
	}
	again, err := ngap.EncodeTransfer(value)
	if err != nil {
		return "error " + err.Error()
	}
	return hex.EncodeToString(again)
}
