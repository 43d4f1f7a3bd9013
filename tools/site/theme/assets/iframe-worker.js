// Browsers start no workers for pages from a disk. There, the search runs in a hidden frame instead of a worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.deliver(new MessageEvent("message", { data: structuredClone(data) }));
      inside.addEventListener("error", (fault) => this.deliver(new ErrorEvent("error", { message: fault.message })));
      inside.importScripts = async (...addresses) => {
        for (const each of addresses) await this.load(each);
      };
      this.ready = this.load(address);
    }

    // A script of the page's own folder, in the frame.
    load(address) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script");
        script.onload = resolve;
        script.onerror = () => reject(new Error("cannot load " + address));
        script.src = new URL(address, location.href);
        this.frame.contentDocument.body.append(script);
      });
    }

    deliver(event) {
      this.dispatchEvent(event);
      const handler = this["on" + event.type];
      if (handler) handler.call(this, event);
    }

    postMessage(data) {
      const message = new MessageEvent("message", { data: structuredClone(data) });
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(message));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
