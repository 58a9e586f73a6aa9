// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"bytes"
	"errors"

	"sluice.dev/sluice/agent/aka"
	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/nas"
)

// Authentication (TS 24.501 section 5.4.1) and security mode (section 5.4.2).

type freshKeys struct {
	ksi  uint8
	kamf [32]byte
}

// networkName is the serving network name (TS 24.501 section 9.12.1).
func networkName(p nas.PLMN) string {
	network := string(p[3:])
	for len(network) < 3 {
		network = "0" + network
	}
	return "5G:mnc" + network + ".mcc" + string(p[:3]) + ".3gppnetwork.org"
}

func (l *Line) authenticate(m *nas.AuthenticationRequest) {
	s := l.settings.Subscription
	if s == nil {
		l.protected(nas.Plain, &nas.AuthenticationFailure{FiveGMMCause: []byte{causeNon5G}})
		l.attempts++
		l.end(errors.New("the core authenticates the line, and no CoreSubscriber has its credentials"), t3502Time)
		return
	}
	refuse := func(cause uint8, auts []byte, why string) {
		l.challenge = errors.New(why)
		l.protected(nas.Plain, &nas.AuthenticationFailure{FiveGMMCause: []byte{cause}, AUTS: auts})
		l.set(t3520, t3520Time)
		l.stop(t3510, t3517, t3521)
	}
	if l.context != nil && l.context.KSI == m.NASKSI && m.NASKSI != noKey {
		refuse(causeKSIInUse, nil, "the core's ngKSI is in use")
		return
	}
	network := networkName(l.core.PLMN())
	if m.EAPMsg != nil {
		if l.peer == nil {
			l.peer = aka.NewPeer(&s.USIM, s.supi(), network)
		}
		answer, err := l.peer.Receive(m.EAPMsg)
		if answer != nil {
			l.again(t3520)
			l.uplink(&nas.AuthenticationResponse{EAPMsg: answer})
		}
		if err != nil {
			l.peer, l.challenge = nil, err
			l.set(t3520, t3520Time)
			return
		}
		l.derive(m.NASKSI, m.ABBA)
		l.world.Save(l)
		return
	}
	if len(m.RAND) != 16 || len(m.AUTN) != 16 {
		l.status(causeMandatory)
		return
	}
	result, auts, err := s.Authenticate([16]byte(m.RAND), [16]byte(m.AUTN), true)
	switch {
	case errors.Is(err, aka.ErrSynch):
		refuse(causeSynch, auts[:], "the core's sequence number is not above the last one of "+s.Name)
	case errors.Is(err, aka.ErrSeparation):
		refuse(causeNon5G, nil, "the core's challenge is not of 5G: its separation bit is 0")
	case err != nil:
		refuse(causeMAC, nil, "the MAC of the core's challenge is wrong: key or opc of "+s.Name+" is not that of the core")
	default:
		l.again(t3520)
		kausf := aka.KAUSF(result.CK, result.IK, network, result.SQNxAK)
		l.fresh = &freshKeys{m.NASKSI, aka.KAMF(aka.KSEAF(kausf, network), s.supi(), m.ABBA)}
		star := aka.ResStar(result.CK, result.IK, network, [16]byte(m.RAND), result.RES)
		l.uplink(&nas.AuthenticationResponse{RES: star[:]})
		l.world.Save(l)
	}
}

// again: after a failure that the core mended, the procedure has its time again.
func (l *Line) again(t timer) {
	if l.timers[t].IsZero() {
		return
	}
	l.stop(t)
	switch l.state {
	case registering, updating:
		l.set(t3510, t3510Time)
	case requesting:
		l.set(t3517, t3517Time)
	case leaving:
		l.set(t3521, t3521Time)
	}
}

// derive has KAMF of EAP-AKA' before EAP success comes: SECURITY MODE COMMAND may bring it (section 5.4.1.2.2.8).
func (l *Line) derive(ksi uint8, abba []byte) {
	kausf, _ := l.peer.KAUSF()
	if kausf == [32]byte{} {
		return
	}
	l.fresh = &freshKeys{ksi, aka.KAMF(aka.KSEAF(kausf, networkName(l.core.PLMN())), l.settings.Subscription.supi(), abba)}
}

// secure takes SECURITY MODE COMMAND (section 5.4.2). Null algorithms are for lines that have no key, with key set identifier 0. Nothing of the line changes before its
// code is verified.
func (l *Line) secure(header uint8, octets []byte, m *nas.SecurityModeCommand) {
	refuseFor := func(cause uint8) { l.uplink(&nas.SecurityModeReject{FiveGMMCause: []byte{cause}}) }
	refuse := func() { refuseFor(causeMismatch) }
	algorithms := m.NASSecAlgo[0]
	var kamf [32]byte
	current := false
	switch {
	case header != nas.NewContext:
		l.core.RefusedNAS(n2.NASUnprotected)
		return
	case l.settings.Subscription == nil:
		if algorithms != 0 || m.NASKSI != 0 {
			refuse()
			return
		}
	case algorithms&15 == nas.Null:
		refuse()
		return
	case l.fresh != nil && l.fresh.ksi == m.NASKSI:
		kamf = l.fresh.kamf
	case l.context != nil && l.context.KSI == m.NASKSI:
		kamf, current = l.context.KAMF, true
	default:
		refuse()
		return
	}
	context, err := nas.NewSecurityContext(m.NASKSI, kamf, algorithms)
	if err != nil {
		refuse()
		return
	}
	if current {
		// Other algorithms of the same key: the counts go on (section 5.4.2.3).
		context.Uplink, context.Downlink = l.context.Uplink, l.context.Downlink
	}
	if _, err := context.Open(octets); err != nil {
		l.core.RefusedNAS(refusalOf(err))
		if !errors.Is(err, nas.ErrReplayed) {
			// TS 33.501 section 6.7.2.
			refuseFor(causeSecurityMode)
		}
		return
	}
	// Our capabilities as the core received them, with octets for EPS that we left out.
	capability := l.capability()
	if !bytes.HasPrefix(m.UESecCap, capability) || len(bytes.Trim(m.UESecCap[len(capability):], "\x00")) != 0 {
		refuse()
		return
	}
	if l.peer != nil && m.EAPMsg != nil {
		_, _ = l.peer.Receive(m.EAPMsg)
		if _, done := l.peer.KAUSF(); !done {
			// Not EAP success: the keys are worth nothing.
			l.fresh, l.peer = nil, nil
			refuseFor(causeSecurityMode)
			return
		}
	}
	l.context, l.fresh, l.peer = context, nil, nil
	complete := &nas.SecurityModeComplete{NASContainer: l.initial}
	if m.IMEISVReq != nil && *m.IMEISVReq&7 == 1 {
		complete.PEI = l.pei()
	}
	l.protected(nas.NewContextCiphered, complete)
	l.world.Save(l)
}
