#include "data/program_identity.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include "trainer/base/strings.h"

namespace trainer {

// Size and modification time of the library or program that contains this function.
std::string program_identity() {
  Dl_info library{};
  struct stat info {};
  if (::dladdr(reinterpret_cast<const void*>(&program_identity), &library) == 0 ||
      ::stat(library.dli_fname, &info) != 0)
    return "";
  return concat(info.st_size, " bytes of ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec);
}

}  // namespace trainer
