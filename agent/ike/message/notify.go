// SPDX-License-Identifier: Apache-2.0

package message

import "fmt"

// NotifyType is the type of a notification. Below 16384 it is an error.
type NotifyType uint16

// Notifications.
const (
	UnsupportedCriticalPayload NotifyType = 1
	InvalidIKESPI              NotifyType = 4
	InvalidMajorVersion        NotifyType = 5
	InvalidSyntax              NotifyType = 7
	InvalidMessageID           NotifyType = 9
	InvalidSPI                 NotifyType = 11
	NoProposalChosen           NotifyType = 14
	InvalidKEPayload           NotifyType = 17
	AuthenticationFailed       NotifyType = 24
	SinglePairRequired         NotifyType = 34
	NoAdditionalSAs            NotifyType = 35
	InternalAddressFailure     NotifyType = 36
	FailedCPRequired           NotifyType = 37
	TSUnacceptable             NotifyType = 38
	InvalidSelectors           NotifyType = 39
	UnacceptableAddresses      NotifyType = 40
	UnexpectedNATDetected      NotifyType = 41
	TemporaryFailure           NotifyType = 43
	ChildSANotFound            NotifyType = 44
	StateNotFound              NotifyType = 47

	InitialContact            NotifyType = 16384
	SetWindowSize             NotifyType = 16385
	AdditionalTSPossible      NotifyType = 16386
	IPCompSupported           NotifyType = 16387
	NATDetectionSourceIP      NotifyType = 16388
	NATDetectionDestinationIP NotifyType = 16389
	Cookie                    NotifyType = 16390
	UseTransportMode          NotifyType = 16391
	HTTPCertLookupSupported   NotifyType = 16392
	RekeySA                   NotifyType = 16393
	ESPTFCPaddingNotSupported NotifyType = 16394
	NonFirstFragmentsAlso     NotifyType = 16395
	MOBIKESupported           NotifyType = 16396
	AdditionalIP4Address      NotifyType = 16397
	AdditionalIP6Address      NotifyType = 16398
	NoAdditionalAddresses     NotifyType = 16399
	UpdateSAAddresses         NotifyType = 16400
	Cookie2                   NotifyType = 16401
	NoNATsAllowed             NotifyType = 16402
	AuthLifetime              NotifyType = 16403
	MultipleAuthSupported     NotifyType = 16404
	RedirectSupported         NotifyType = 16406
	Redirect                  NotifyType = 16407
	RedirectedFrom            NotifyType = 16408
	TicketLifetimeOpaque      NotifyType = 16409
	TicketRequest             NotifyType = 16410
	TicketAck                 NotifyType = 16411
	TicketNack                NotifyType = 16412
	TicketOpaque              NotifyType = 16413
	EAPOnlyAuthentication     NotifyType = 16417
	FragmentationSupported    NotifyType = 16430
	SignatureHashAlgorithms   NotifyType = 16431
	UsePPK                    NotifyType = 16435
	PPKIdentity               NotifyType = 16436
	NoPPKAuth                 NotifyType = 16437
	IntermediateSupported     NotifyType = 16438
	AdditionalKeyExchange     NotifyType = 16441
)

// Error reports whether the notification is an error.
func (t NotifyType) Error() bool { return t < 16384 }

var notifyNames = map[NotifyType]string{
	UnsupportedCriticalPayload: "UNSUPPORTED_CRITICAL_PAYLOAD", InvalidIKESPI: "INVALID_IKE_SPI", InvalidMajorVersion: "INVALID_MAJOR_VERSION",
	InvalidSyntax: "INVALID_SYNTAX", InvalidMessageID: "INVALID_MESSAGE_ID", InvalidSPI: "INVALID_SPI", NoProposalChosen: "NO_PROPOSAL_CHOSEN",
	InvalidKEPayload: "INVALID_KE_PAYLOAD", AuthenticationFailed: "AUTHENTICATION_FAILED", SinglePairRequired: "SINGLE_PAIR_REQUIRED",
	NoAdditionalSAs: "NO_ADDITIONAL_SAS", InternalAddressFailure: "INTERNAL_ADDRESS_FAILURE", FailedCPRequired: "FAILED_CP_REQUIRED",
	TSUnacceptable: "TS_UNACCEPTABLE", InvalidSelectors: "INVALID_SELECTORS", UnacceptableAddresses: "UNACCEPTABLE_ADDRESSES",
	UnexpectedNATDetected: "UNEXPECTED_NAT_DETECTED", TemporaryFailure: "TEMPORARY_FAILURE", ChildSANotFound: "CHILD_SA_NOT_FOUND",
	StateNotFound: "STATE_NOT_FOUND",
}

func (t NotifyType) String() string {
	if name := notifyNames[t]; name != "" {
		return name
	}
	return fmt.Sprintf("notification %d", uint16(t))
}
