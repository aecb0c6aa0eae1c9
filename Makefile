# Forwards to the two commands; they need no make.
.PHONY: demo test
demo:
	./demo
test:
	./test
