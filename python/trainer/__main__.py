"""python -m trainer: the program itself, in the place of Python."""
import os
import sys

from ._program import program

os.execv(program(), [str(program()), *sys.argv[1:]])
