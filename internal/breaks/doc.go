// Command breaks asks whether the tests hold the code. It puts one deliberate fault after the other into the sources,
// compiles each through the overlay of the go command, so that no file of the checkout changes, and runs the test that must
// go red:
//
//	go run ./internal/breaks                 all of them; `make breaks` writes docs/BREAKS.md, too
//	go run ./internal/breaks -run 'lease'    those whose area or name matches
//	go run ./internal/breaks -build          only whether all compile, many at a time
//
// The faults are in list/AREA.txt, in blocks that a line of "====" separates:
//
//	name: doubt-forgotten
//	file: producer/doubt.go
//	says: the doubt of an earlier attempt is forgotten
//	test: ./producer -run '^TestADoubtStays$'
//	--- from
//	f.doubted = f.doubted || doubt
//	--- to
//	f.doubted = doubt
//
// The text of "from" stands exactly once in the file, which the package's own test holds, so that the list follows the code.
// A fault that no test can tell from the sound code says why in a line "survives: the reason" in the place of "test:".
//
// It ends with 1 where a break survives that has no reason, does not compile, names what no script has, or names a test that there is not.
package main
