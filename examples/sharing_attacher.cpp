// Reads the text that another process (sharing_publisher) has published, out of that process's device memory.
//
//   sharing_attacher /path/of/a/socket
#include <chrono>
#include <cuvmm/cuvmm.hpp>
#include <cuvmm/sharing/sharing.hpp>
#include <iostream>
#include <string>

namespace sharing = cuvmm::sharing;
using namespace std::chrono_literals;

int main(int count, char** arguments) try {
  if (count != 2) {
    std::cerr << "usage: sharing_attacher /path/of/a/socket\n";
    return 2;
  }
  const auto address = sharing::SocketAddress::at_path(arguments[1]);
  const auto driver = cuvmm::Driver::open();
  const cuvmm::CurrentContext context(driver.device(cuvmm::DeviceOrdinal{0}));

  // Read-only unless more is asked for, on the device where the memory lies unless another is named.
  sharing::AttachOptions options;
  options.wait_for_publisher = true;
  auto attached = sharing::AttachedRange::attach(driver, address, "text", options, sharing::Deadline::in(60s));
  std::string text(attached.size(), ' ');
  cuvmm::copy_from_device(text, attached.range(), 0);
  std::cout << text << '\n';

  const sharing::RangeNews news = attached.wait(sharing::Deadline::in(60s));
  if (news.publisher_gone) std::cout << "the publisher is gone; the bytes would stay\n";
  if (news.withdrawn) std::cout << "the publisher withdraws it: " << to_string(*news.withdrawn) << '\n';
  attached.detach();
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
