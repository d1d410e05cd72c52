package ucan

import (
	"time"

	"weir/internal/weir"
)

// Conditions are what a proof must fulfil.
type Conditions struct {
	Audience   string    // the DID that the proof must be for
	Now, Until time.Time // the period in which every delegation must be in force
	Abilities  []string  // what the proof must allow, all on one space
}

// UploadAbilities returns the abilities that an upload needs.
func UploadAbilities() []string {
	return []string{"space/blob/add", "space/index/add", "upload/add"}
}

// A Proof is a delegation that was checked: a chain of signed delegations, from the key of a space
// to this service.
type Proof struct {
	Space   string    // the did:key of the space
	Expires time.Time // when the first delegation of the chain ends; zero if none ends

	// AccountIssued says that an account (did:mailto) issued a delegation of the chain. Only the
	// service that confirmed the account's address can verify that.
	AccountIssued bool
}

// Check reads and verifies a proof in any form that the tools of upload services write.
func Check(text string, c Conditions) (Proof, error) {
	return Proof{}, weir.Errorf(weir.Unavailable, "proofs are not checked yet")
}
