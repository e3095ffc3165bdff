// nccl_group.cpp declares what it calls of NCCL by itself, because the header is not there when the program
// is built. Where NVIDIA's package is installed, its header and its library are compared with that.
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include "base/dynamic_library.h"

namespace trainer {
namespace {

class NcclHeader : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(TORCH_DIR).parent_path() / "nvidia" / "nccl";
    if (!std::filesystem::exists(folder_ / "include" / "nccl.h"))
      GTEST_SKIP() << "NVIDIA's package of NCCL is not installed (scripts/setup --full)";
    std::ifstream in(folder_ / "include" / "nccl.h");
    std::ostringstream text;
    text << in.rdbuf();
    header_ = std::regex_replace(text.str(), std::regex("\\s+"), " ");
  }

  void expect(const std::string& declaration) const {
    EXPECT_NE(header_.find(declaration), std::string::npos) << declaration;
  }

  std::filesystem::path folder_;
  std::string header_;  // in one line
};

TEST_F(NcclHeader, DeclaresTheFunctionsAsTheyAreCalled) {
  expect("ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);");
  expect("ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);");
  expect("ncclResult_t ncclGroupStart();");
  expect("ncclResult_t ncclGroupEnd();");
  expect(
      "ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t "
      "datatype, "
      "ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);");
  expect(
      "ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, "
      "ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);");
  expect(
      "ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t "
      "datatype, "
      "int root, ncclComm_t comm, cudaStream_t stream);");
  expect(
      "ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, "
      "ncclComm_t comm, cudaStream_t stream);");
  expect(
      "ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, "
      "ncclComm_t comm, cudaStream_t stream);");
  expect("ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError);");
  expect("ncclResult_t ncclCommAbort(ncclComm_t comm);");
  expect("const char* ncclGetErrorString(ncclResult_t result);");
}

TEST_F(NcclHeader, HasTheSameNumbers) {
  expect("#define NCCL_UNIQUE_ID_BYTES 128");
  expect("typedef struct { char internal[NCCL_UNIQUE_ID_BYTES]; } ncclUniqueId;");
  expect("ncclSuccess = 0,");
  expect("ncclInProgress = 7,");
  expect("ncclUint8 = 1,");
  expect("ncclFloat32 = 7,");
  expect("ncclBfloat16 = 9,");
  expect("typedef enum { ncclSum = 0,");
}

TEST_F(NcclHeader, TheLibraryHasTheFunctions) {
  const std::string file = folder_ / "lib" / "libnccl.so.2";
  const DynamicLibrary library(file.c_str());
  ASSERT_TRUE(library.is_open()) << dlerror();
  for (const char* name : {"ncclGetUniqueId", "ncclCommInitRank", "ncclGroupStart", "ncclGroupEnd",
                           "ncclAllReduce", "ncclReduce", "ncclBroadcast", "ncclSend", "ncclRecv",
                           "ncclCommGetAsyncError", "ncclCommAbort", "ncclGetErrorString"})
    EXPECT_NE(library.find<int()>(name), nullptr) << name;
}

}  // namespace
}  // namespace trainer
