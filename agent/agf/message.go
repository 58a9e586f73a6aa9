// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"errors"
	"slices"

	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
)

// NAS messages out and in (TS 24.501 section 4.4).

// uplink sends a message. Before there is a security context it is plain.
func (l *Line) uplink(message any) { l.protected(nas.IntegrityCiphered, message) }

func (l *Line) protected(header uint8, message any) {
	octets, err := nas.Encode(message)
	if err == nil && l.context != nil && header != nas.Plain {
		octets, err = l.context.Protect(header, octets)
		if l.context.Uplink%(countMargin/2) == 0 {
			// So that counts after a restart are above all that were used.
			l.world.Save(l)
		}
	}
	if err != nil {
		l.failed(err, 0)
		return
	}
	l.transport(octets)
}

func (l *Line) transport(octets []byte) {
	if l.core == nil {
		return
	}
	amf, ran := l.core.IDs()
	l.core.Send(&ngap.UplinkNASTransport{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: octets, UserLocationInformation: l.location()})
}

// begin sends an initial NAS message (section 4.4.6): with a context, the whole message is ciphered in a container of one that has cleartext
// IEs alone. It opens a context at an AMF if there is none.
func (l *Line) begin(whole any, clear func(container []byte) any) error {
	octets, err := nas.Encode(whole)
	if err != nil {
		return err
	}
	l.initial = octets
	if l.context != nil {
		if octets, err = nas.Encode(clear(l.context.CipherContainer(l.initial))); err == nil {
			octets, err = l.context.Protect(nas.Integrity, octets)
		}
		if err != nil {
			return err
		}
	}
	if l.core != nil {
		l.transport(octets)
		return nil
	}
	return l.open(octets, nil, "")
}

// open sends an initial message by a new context: at an AMF of another set, if the AMF `from` has it rerouted.
func (l *Line) open(octets []byte, reroute *ngap.RerouteNASRequest, from string) error {
	var guti *nas.GUTI
	var to *n2.Reroute
	if reroute != nil {
		to = &n2.Reroute{Set: n2.AMFSet(reroute), From: from}
	}
	l.rerouted = reroute != nil
	if g, err := nas.GUTIOf(l.guti); err == nil {
		guti = &g
	}
	core, err := l.world.Open(l, guti, to)
	if err != nil {
		return err
	}
	l.core = core
	plmn, err := core.PLMN().Octets()
	if err != nil {
		return err
	}
	_, ran := core.IDs()
	requested := ngap.UEContextRequestRequested
	message := &ngap.InitialUEMessage{RANUENGAPID: ran, NASPDU: octets, UserLocationInformation: l.location(),
		RRCEstablishmentCause: ngap.RRCEstablishmentCauseNotAvailable, UEContextRequest: &requested, SelectedPLMNIdentity: plmn}
	if guti != nil {
		message.FiveGSTMSI = &ngap.FiveGSTMSI{AMFSetID: bits(guti.AMFID>>6&0x3ff, 10), AMFPointer: bits(guti.AMFID&63, 6),
			FiveGTMSI: []byte{byte(guti.TMSI >> 24), byte(guti.TMSI >> 16), byte(guti.TMSI >> 8), byte(guti.TMSI)}}
	}
	if reroute != nil {
		n2.Rerouted(message, reroute)
	}
	if l.settings.Subscription == nil {
		authenticated := ngap.AuthenticatedIndicationTrue
		message.AuthenticatedIndication = &authenticated
	}
	core.Send(message)
	return nil
}

// bits is a bit string with a value.
func bits(value uint32, count int) per.BitString {
	value <<= 32 - count
	octets := []byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}
	return per.BitString{Octets: octets[:(count+7)/8], Count: count}
}

// unprotected are the messages that are taken without protection (section 4.4.4.2).
func unprotected(message any) bool {
	switch m := message.(type) {
	case *nas.IdentityRequest:
		return m.FiveGSIDType&7 == nas.IdentitySUCI
	case *nas.AuthenticationRequest, *nas.AuthenticationResult, *nas.AuthenticationReject, *nas.UEDeregistrationAccept:
		return true
	case *nas.RegistrationReject:
		// Not authorized for a CAG or for an area.
		return !slices.Contains([]byte{76, 78, 81, 82}, m.FiveGMMCause[0])
	case *nas.ServiceReject:
		return m.FiveGMMCause[0] != 76 && m.FiveGMMCause[0] != 78
	}
	return false
}

// downlink takes a NAS message. One that fails the integrity check is discarded, and so is one behind another of the same NGAP message that ended
// the line's context.
func (l *Line) downlink(octets []byte) {
	if len(octets) == 0 || l.state == over || l.core == nil {
		return
	}
	header, err := nas.HeaderOf(octets)
	if err != nil {
		l.core.RefusedNAS(n2.NASMalformed)
		return
	}
	plain := octets
	switch {
	case header == nas.NewContext:
		plain, _ = nas.Unverified(octets)
	case header != nas.Plain && l.context == nil:
		l.core.RefusedNAS(n2.NASNoContext)
		return
	case header != nas.Plain:
		if plain, err = l.context.Open(octets); err != nil {
			l.core.RefusedNAS(refusalOf(err))
			return
		}
	}
	// Of a line that its gateway has authenticated, a core may leave out security while it registers.
	needed := l.context != nil || l.state != registering || l.settings.Subscription != nil
	message, err := nas.Decode(plain)
	if err != nil {
		l.unreadable(plain, err, header == nas.NewContext || header == nas.Plain && needed)
		return
	}
	command, isCommand := message.(*nas.SecurityModeCommand)
	switch {
	case isCommand:
		l.secure(header, octets, command)
		return
	case header == nas.NewContext, header == nas.Plain && needed && !unprotected(message):
		l.core.RefusedNAS(n2.NASUnprotected)
		return
	}
	l.unverified = header == nas.Plain && l.settings.Subscription != nil
	l.take(message)
}

// refusalOf is why a protected message is not taken.
func refusalOf(err error) n2.NASRefusal {
	switch {
	case errors.Is(err, nas.ErrReplayed):
		return n2.NASReplayed
	case errors.Is(err, nas.ErrIntegrity):
		return n2.NASIntegrity
	case errors.Is(err, nas.ErrCount):
		return n2.NASCount
	}
	return n2.NASMalformed
}

// unreadable answers a message that cannot be read by 5GMM STATUS (section 7), unless any host may have sent it.
func (l *Line) unreadable(plain []byte, err error, silent bool) {
	why, cause := n2.NASMalformed, uint8(causeMandatory)
	if errors.Is(err, nas.ErrUnknownType) {
		why, cause = n2.NASUnknownType, causeUnknownType
	}
	l.core.RefusedNAS(why)
	if !silent && len(plain) >= 3 {
		l.status(cause)
	}
}

func (l *Line) take(message any) {
	switch m := message.(type) {
	case *nas.IdentityRequest:
		switch m.FiveGSIDType & 7 {
		case nas.IdentitySUCI:
			l.uplink(&nas.IdentityResponse{FiveGSID: l.suci()})
		case nas.IdentityGUTI:
			l.uplink(&nas.IdentityResponse{FiveGSID: l.identity()})
		case nas.IdentityIMEI, nas.IdentityIMEISV, nas.IdentityMAC:
			l.uplink(&nas.IdentityResponse{FiveGSID: l.pei()})
		default:
			// No identity (section 5.4.3.3).
			l.uplink(&nas.IdentityResponse{FiveGSID: []byte{0}})
		}
	case *nas.AuthenticationRequest:
		l.authenticate(m)
	case *nas.AuthenticationResult:
		if l.peer != nil {
			if _, err := l.peer.Receive(m.EAPMsg); err != nil {
				// EAP-Failure: its keys are worth nothing.
				l.fresh, l.peer = nil, nil
				return
			}
			l.derive(m.NASKSI, m.ABBA)
		}
	case *nas.AuthenticationReject:
		l.attempts++
		// As an illegal UE (section 5.4.1.3.5).
		l.end(errors.New("the core rejects the authentication"), l.holdOf(causeIllegalUE, nil, nil))
	case *nas.RegistrationAccept:
		l.registered(m)
	case *nas.RegistrationReject:
		l.rejected(m)
	case *nas.ServiceAccept:
		l.served(m)
	case *nas.ServiceReject:
		l.notServed(m)
	case *nas.NetworkDeregistrationRequest:
		l.dismissed(m)
	case *nas.UEDeregistrationAccept:
		if l.state == leaving {
			l.stop(t3521)
			l.finish(nil, 0)
		}
	case *nas.ConfigurationUpdateCommand:
		l.configure(m)
	case *nas.Notification:
		// Only of 3GPP access (section 5.6.3).
		l.uplink(&nas.NotificationResponse{PDUSessStat: nas.StatusOf(l.active()...)})
	case *nas.DLNASTransport:
		l.sessionMessage(m)
	}
}

func (l *Line) status(cause uint8) { l.uplink(&nas.Status{FiveGMMCause: []byte{cause}}) }
