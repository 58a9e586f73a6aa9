// SPDX-License-Identifier: Apache-2.0

package nas

import "strconv"

// MMCause is a 5GMM cause (TS 24.501 section 9.11.3.2).
type MMCause uint8

// SMCause is a 5GSM cause (TS 24.501 section 9.11.4.2).
type SMCause uint8

// String returns "5GMM cause 11, PLMN not allowed".
func (c MMCause) String() string { return textOf("5GMM", uint8(c), mmCauses) }

// String returns "5GSM cause 27, missing or unknown DNN".
func (c SMCause) String() string { return textOf("5GSM", uint8(c), smCauses) }

func textOf(layer string, cause uint8, texts map[uint8]string) string {
	text := layer + " cause " + strconv.Itoa(int(cause))
	of := texts[cause]
	if of == "" {
		of = causes[cause]
	}
	if of != "" {
		text += ", " + of
	}
	return text
}

var mmCauses = map[uint8]string{
	3:  "illegal UE",
	5:  "PEI not accepted",
	6:  "illegal ME",
	7:  "5GS services not allowed",
	9:  "UE identity cannot be derived by the network",
	10: "implicitly de-registered",
	11: "PLMN not allowed",
	12: "tracking area not allowed",
	13: "roaming not allowed in this tracking area",
	15: "no suitable cells in tracking area",
	20: "MAC failure",
	21: "synch failure",
	22: "congestion",
	23: "UE security capabilities mismatch",
	24: "security mode rejected",
	26: "non-5G authentication unacceptable",
	27: "N1 mode not allowed",
	28: "restricted service area",
	31: "redirection to EPC required",
	43: "LADN not available",
	62: "no network slices available",
	65: "maximum number of PDU sessions reached",
	71: "ngKSI already in use",
	72: "non-3GPP access to 5GCN not allowed",
	73: "serving network not authorized",
	74: "temporarily not authorized for this SNPN",
	75: "permanently not authorized for this SNPN",
	76: "not authorized for this CAG, or for CAG cells only",
	77: "wireline access area not allowed",
	78: "PLMN not allowed to operate at the present UE location",
	90: "payload was not forwarded",
	91: "DNN not supported or not subscribed in the slice",
	92: "insufficient user-plane resources for the PDU session",
}

var smCauses = map[uint8]string{
	8:  "operator determined barring",
	26: "insufficient resources",
	27: "missing or unknown DNN",
	28: "unknown PDU session type",
	29: "user authentication or authorization failed",
	31: "request rejected",
	32: "service option not supported",
	33: "requested service option not subscribed",
	35: "PTI already in use",
	36: "regular deactivation",
	38: "network failure",
	39: "reactivation requested",
	41: "semantic error in the TFT operation",
	42: "syntactical error in the TFT operation",
	43: "invalid PDU session identity",
	44: "semantic errors in packet filters",
	45: "syntactical error in packet filters",
	46: "out of LADN service area",
	47: "PTI mismatch",
	50: "PDU session type IPv4 only allowed",
	51: "PDU session type IPv6 only allowed",
	54: "PDU session does not exist",
	57: "PDU session type IPv4v6 only allowed",
	58: "PDU session type Unstructured only allowed",
	59: "unsupported 5QI value",
	68: "not supported SSC mode",
	70: "missing or unknown DNN in a slice",
	81: "invalid PTI value",
	82: "maximum data rate per UE for user-plane integrity protection is too low",
	83: "semantic error in the QoS operation",
	84: "syntactical error in the QoS operation",
	85: "invalid mapped EPS bearer identity",
}

// Of both.
var causes = map[uint8]string{
	67:  "insufficient resources for specific slice and DNN",
	69:  "insufficient resources for specific slice",
	95:  "semantically incorrect message",
	96:  "invalid mandatory information",
	97:  "message type non-existent or not implemented",
	98:  "message type not compatible with the protocol state",
	99:  "information element non-existent or not implemented",
	100: "conditional IE error",
	101: "message not compatible with the protocol state",
	111: "protocol error",
}
