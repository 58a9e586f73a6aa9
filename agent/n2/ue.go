// SPDX-License-Identifier: Apache-2.0

package n2

import (
	"slices"

	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
)

// Procedures that subscribers of every access answer alike.

// LocationAnswer answers LOCATION REPORTING CONTROL; nil: there is no answer. The report is sent at once. Wireline and untrusted access have no areas of interest.
func LocationAnswer(m *ngap.LocationReportingControl, amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID, location ngap.UserLocationInformation) any {
	switch m.LocationReportingRequestType.EventType {
	case ngap.EventTypeDirect, ngap.EventTypeChangeOfServeCell:
		return &ngap.LocationReport{AMFUENGAPID: amf, RANUENGAPID: ran, UserLocationInformation: location, LocationReportingRequestType: m.LocationReportingRequestType}
	case ngap.EventTypeStopChangeOfServeCell, ngap.EventTypeStopUePresenceInAreaOfInterest, ngap.EventTypeCancelLocationReportingForTheUe:
		return nil
	}
	cause := ngap.CauseRadioNetworkUnspecified
	return &ngap.LocationReportingFailureIndication{AMFUENGAPID: amf, RANUENGAPID: ran, Cause: ngap.Cause{RadioNetwork: &cause}}
}

// AMFSet is the AMF set that a REROUTE NAS REQUEST names.
func AMFSet(m *ngap.RerouteNASRequest) uint16 { return uint16(number(m.AMFSetID)) }

// InitialMessage is the INITIAL UE MESSAGE in a REROUTE NAS REQUEST; nil: there is none.
func InitialMessage(m *ngap.RerouteNASRequest) *ngap.InitialUEMessage {
	pdu, err := ngap.Decode(m.NGAPMessage)
	if err != nil || slices.ContainsFunc(pdu.Faults, func(f per.Fault) bool { return f.Criticality == per.Reject }) {
		return nil
	}
	first, ok := pdu.Value.(*ngap.InitialUEMessage)
	if !ok || len(first.NASPDU) == 0 {
		return nil
	}
	return first
}

// Rerouted gives an INITIAL UE MESSAGE what the REROUTE NAS REQUEST has for the other AMF.
func Rerouted(first *ngap.InitialUEMessage, m *ngap.RerouteNASRequest) {
	set := bits(number(m.AMFSetID), 10)
	first.AMFSetID, first.AllowedNSSAI, first.SourceToTargetAMFInformationReroute = &set, m.AllowedNSSAI, m.SourceToTargetAMFInformationReroute
}
