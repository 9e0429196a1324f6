#include "team/watched_call.hpp"

#include <pthread.h>

#include "ranks.hpp"

namespace cuvmm::team {
namespace {

using namespace test;

// As long as it lives, threads are to have a stack for which there are no addresses.
class NoThreads {
 public:
  NoThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t huge = before_;
    EXPECT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 47), 0);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
  }
  ~NoThreads() { EXPECT_EQ(pthread_setattr_default_np(&before_), 0); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  NoThreads(NoThreads&&) = delete;
  NoThreads& operator=(NoThreads&&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST(WatchedCall, NamesTheCallForWhichTheSystemGivesNoThread) {
  const auto work = [] { return Result<void>(); };
  {
    const NoThreads none;
    expect_failure(WatchedCall::start("cuMulticastBindMem", work), ErrorKind::driver_failure,
                   {"cuMulticastBindMem", "gives no thread"});
  }
  auto started = WatchedCall::start("cuMulticastBindMem", work);
  ASSERT_TRUE(started);
  EXPECT_TRUE(started->wait(soon()));
  EXPECT_TRUE(started->result());
}

}  // namespace
}  // namespace cuvmm::team
