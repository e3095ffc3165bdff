// Opens Arrow's libraries, out of a pyarrow, and libtrainer_parquet.so.
#pragma once

#include "data/parquet/job.h"

namespace trainer {

// Runs a job of libtrainer_parquet, which is opened with the first one. Takes the first pyarrow of: the
// environment variable PYARROW_DIR; beside the torch that is in use; beside the program, where pip installed
// it; what the Python of that torch, else python3 on the PATH, imports. Throws DataError with the command
// that installs it if there is none of the right version; the job's own problems are in the job.
void read_parquet(ParquetJob& job);

}  // namespace trainer
