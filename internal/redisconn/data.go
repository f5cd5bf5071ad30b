package redisconn

import (
	"fmt"

	"github.com/headgate/headgate/admission"
)

// DataVersion is the newest version of the layout of data that this release knows. It is raised when an older release could no
// longer work on the same data. Scripts have no version of their own: Redis knows each by its text, so two releases side by side
// run theirs.
const DataVersion = 3

// The versions before it: TextData has no packed fields, and says so by its absence, too; LayoutData is that of a deployment that is
// being migrated, because releases that do not know it do not compare layouts.
const (
	TextData   = 1
	LayoutData = 2
)

// DataField is the field of the state that holds the DataVersion of the deployment, from its first start on.
const DataField = "data"

// CheckData refuses data of a version that this release does not know.
func CheckData(stored int) error {
	if stored <= DataVersion {
		return nil
	}
	return fmt.Errorf("%w: version %d, this one knows up to %d; run the newer release here, or give this one another prefix", admission.ErrNewerData, stored, DataVersion)
}
