/* Pages that are opened as files may not start a worker: the search then runs in a hidden frame instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.queue = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = (...urls) =>
        Promise.all(urls.map((src) => this.load(src)));
      this.load(url).then(() => {
        const waiting = this.queue;
        this.queue = null;
        waiting.forEach((data) => this.postMessage(data));
      });
    }

    load(src) {
      return new Promise((resolve) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = src;
        script.onload = resolve;
        this.frame.contentDocument.body.appendChild(script);
      });
    }

    postMessage(data) {
      if (this.queue) this.queue.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
