package policy

import (
	"strconv"

	"github.com/headgate/headgate/admission"
)

// MaxNumber is the most urgent number that ClassOfNumber takes.
const MaxNumber = 10

// ClassOfNumber maps a number from 0, the least urgent, to 10, the most urgent, onto ordered classes, the most
// urgent first. The numbers are spread evenly: of k classes counted from the least urgent as 0, number n belongs
// to class min(k-1, ⌊n·k/10⌋). For three classes that is 0-3 low, 4-6 medium, 7-10 high; with more than eleven
// some classes have no number.
func ClassOfNumber(number int, classes []admission.Class) (admission.Priority, error) {
	if number < 0 || number > MaxNumber {
		return "", &admission.FieldError{
			Field: "priority", Value: strconv.Itoa(number), Allowed: "0 to 10, 10 the most urgent",
		}
	}
	if len(classes) == 0 {
		return "", &admission.FieldError{Field: "classes", Value: "none", Allowed: "1 to 128 classes"}
	}
	rank := min(len(classes)-1, number*len(classes)/MaxNumber)
	return classes[len(classes)-1-rank].Name, nil
}
