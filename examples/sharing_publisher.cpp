// Publishes a text in device memory until another process (sharing_attacher) has read it.
//
//   sharing_publisher /path/of/a/socket 'some text'
#include <chrono>
#include <cuvmm/cuvmm.hpp>
#include <cuvmm/sharing/sharing.hpp>
#include <iostream>
#include <string>
#include <thread>

namespace sharing = cuvmm::sharing;
using namespace std::chrono_literals;

int main(int count, char** arguments) try {
  if (count != 3) {
    std::cerr << "usage: sharing_publisher /path/of/a/socket TEXT\n";
    return 2;
  }
  const auto address = sharing::SocketAddress::at_path(arguments[1]);
  const std::string text = arguments[2];

  const auto driver = cuvmm::Driver::open();
  const cuvmm::CurrentContext context(driver.device(cuvmm::DeviceOrdinal{0}));
  // How memory may be shared is decided when it is created.
  cuvmm::MappedRangeOptions options;
  options.memory.handle_types = cuvmm::HandleType::posix_file_descriptor;
  auto range = cuvmm::MappedRange::create(driver, options);
  cuvmm::copy_to_device(range, range.append(text.size()), text);

  auto publisher = sharing::RangePublisher::listen(address, {}, sharing::Deadline::in(5s));
  auto published = publisher.publish("text", range);
  while (published.attached().empty()) std::this_thread::sleep_for(10ms);
  for (const sharing::Attached& each : published.attached())
    std::cout << (each.process != 0 ? "a process has attached" : "a process of another namespace has attached") << '\n';
  // Announces it, and waits until nobody has the range any more; or says who still has.
  published.withdraw(sharing::Deadline::in(60s));
  std::cout << "it has detached\n";
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
