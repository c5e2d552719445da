// Which devices UCX takes: the user's, else those of the library that is built from this one.
#include <algorithm>
#include <cstdlib>

#include "catch.hpp"
#include "settings/settings.hpp"
#include "transport/ucx/ucx.hpp"
#include "transport/ucx/ucx_worker.hpp"

namespace {

using pith::UcxWorker;

// Whether sockets are over lo, and nothing else.
bool talks_over_lo_only() {
  const auto worker = UcxWorker::create("192.0.2.2");  // no loopback address
  REQUIRE(worker);
  const auto& devices = (*worker)->devices();
  const auto is_other = [](const std::string& device) {
    return device.find("tcp/") == 0 && device != "tcp/lo";
  };
  return std::find(devices.begin(), devices.end(), "tcp/lo") != devices.end() &&
         std::none_of(devices.begin(), devices.end(), is_other);
}

}  // namespace

TEST_CASE("ucx: devices of the environment, else of the library's defaults", "[ucx]") {
  const pith::UcxSupport support = pith::ucx_support("127.0.0.1");
  if (support.why_not) {
    WARN("skipped: " << support.why_not.message());
    return;
  }
  if (std::getenv("UCX_NET_DEVICES") || talks_over_lo_only()) {
    WARN("skipped: there are no other devices than lo");
    return;
  }
  pith::set_defaults({{"UCX_NET_DEVICES", "lo"}});
  CHECK(talks_over_lo_only());
  setenv("UCX_NET_DEVICES", "lo", 1);
  pith::set_defaults({{"UCX_NET_DEVICES", "no_such_device"}});
  CHECK(talks_over_lo_only());
  unsetenv("UCX_NET_DEVICES");
  pith::set_defaults({});
  CHECK_FALSE(talks_over_lo_only());
}
