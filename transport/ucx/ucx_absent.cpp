// Stands in for ucx_*.cpp where UCX's headers were not found.
#include <utility>

#include "transport/ucx/ucx.hpp"

namespace pith {
namespace {

Error absent() {
  return {Code::system, "this build has no UCX: libucx-dev was not there when it was made"};
}

}  // namespace

UcxSupport ucx_support(const std::string&) {
  UcxSupport support;
  support.why_not = absent();
  return support;
}

bool host_has_rdma() { return false; }

Expected<std::unique_ptr<UcxTransport>> UcxTransport::create(Scheduler&, Mailbox&, int, int,
                                                             const Secret&, const UcxOptions&) {
  return absent();
}

}  // namespace pith
